"""The settings of `albert-tf demo-page`."""

import dataclasses

from albert_tf import flags
from albert_tf.serve.settings.predict import ServedModelSettings


@dataclasses.dataclass(frozen=True, kw_only=True)
class PageSettings(ServedModelSettings):
    """Page.

    Args:
        host: Address to listen at. With an address other than this machine's, such as
            0.0.0.0, everyone who can reach it can use the model.
        port: Port to listen at. 0 picks the first free port starting at 7860.
        open_browser: Open the page in the browser.
    """

    host: str = flags.field("127.0.0.1")
    port: int = flags.field(0, at_least=0, at_most=65535)
    open_browser: bool = flags.field(True)
