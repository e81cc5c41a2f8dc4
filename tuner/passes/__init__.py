"""Graph passes: rewriting an ONNX model before a backend sees it."""
