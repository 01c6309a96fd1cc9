"""Raw text in, answers out; models for other programs and other runtimes.

In reading order:

    predict       a model's folder to a predictor; rows of text to answers
    rows          lines of a file, or rows from Python, checked
    demo_page     a local page that tries a model
    saved_models  SavedModels that `weights.load` reads again, whole or not there
    hub           TF-Hub modules: the encoder, its heads, and preprocessing
    sessions      models in LiteRT or ONNX Runtime, and folders of them with texts
    runtimes      conversion to LiteRT and ONNX, and what runs a model
    convert       weights from one format to another, checked
    settings      the scripts' flags
"""
