"""TensorRT and TensorRT-RTX: one adapter for the two sets of bindings."""
