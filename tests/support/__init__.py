"""What tests share: kernels built in one line, and the backends they run on."""
