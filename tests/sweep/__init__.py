"""The sweep: every case that ONNX ships, differentiated and checked in four ways, and its page."""
