"""ALBERT (Lan et al., ICLR 2020, arXiv 1909.11942) in TensorFlow 2 and Keras 3."""
