"""The one exception for a user's mistake."""


class InputError(ValueError):
    """Something that the caller gave cannot be used.

    The message is one line that names the file, line, key or flag, the value received
    and what was expected; where weights do not fit, one line for each kind of mistake
    follows. Scripts print it without a traceback (see `flags.run`).
    """

    # Keras rewrites what is raised in a layer's call to many lines, unless this is set.
    _keras_call_info_injected = True
