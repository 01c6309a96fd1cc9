"""Prediction on raw text, and models for other programs and runtimes.

In reading order:

    predict       opens a model for raw text, and predicts on rows of text
    rows          reads and checks rows of text
    demo_page     a local page to try a model
    saved_models  writes SavedModels, which `weights.load` can read
    hub           TF-Hub modules: the encoder, its heads, and preprocessing
    sessions      opens models in LiteRT or ONNX Runtime
    runtimes      writes models for LiteRT and ONNX Runtime, and chooses a runtime
    convert       converts weights between formats, and checks the result
    settings      the flags of the scripts
"""
