"""Loads the shared fixtures."""


def pytest_configure(config):
    """Loads them in processes that run tests.

    The process of pytest-xdist that starts the others needs no fixtures. The others
    would start seconds later if it first imported TensorFlow.
    """
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", None):
        config.pluginmanager.import_plugin("shared_fixtures")
