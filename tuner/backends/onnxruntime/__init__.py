"""The ONNX Runtime backend (CPU): session options, graph passes and post-training quantisation."""
