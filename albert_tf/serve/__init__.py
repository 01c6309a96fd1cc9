"""Raw text in, answers out: predictions, SavedModels, TF-Hub, LiteRT and ONNX."""
