"""Read graphs and functions from other sources: HLO, ONNX, TensorFlow, profiles, instances."""
