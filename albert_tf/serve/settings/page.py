"""The settings of `albert-tf demo-page`."""

import dataclasses

from albert_tf import flags
from albert_tf.serve.settings.predict import ServedModelSettings


@dataclasses.dataclass(frozen=True, kw_only=True)
class PageSettings(ServedModelSettings):
    """Which model, and where its page is."""

    host: str = flags.field(
        "Address to listen at. With another one than this machine's own, such as "
        "0.0.0.0, everybody who reaches it can ask.",
        "127.0.0.1",
    )
    port: int = flags.field(
        "Port to listen at; 0 takes a free one from 7860 on.",
        0,
        at_least=0,
        at_most=65535,
    )
    open_browser: bool = flags.field("Open the page in the browser.", True)
