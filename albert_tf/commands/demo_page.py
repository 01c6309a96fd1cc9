"""Opens a local page to try a model in the browser.

    albert-tf demo-page --model=runs/mine
    albert-tf demo-page --model=albert_base_v2 --task=fill_mask --noopen_browser

The page needs Gradio: pip install 'albert_tf[page]'. Press Ctrl-C to stop it.
"""

from albert_tf.serve.settings import PageSettings
from albert_tf.tasks.settings.pipeline import PipelineSettings

SETTINGS = (PageSettings, PipelineSettings)


def main(config: PageSettings, options: PipelineSettings) -> None:
    """Serves the page until it is interrupted."""
    from albert_tf.serve import demo_page

    demo_page.serve(config, options)
