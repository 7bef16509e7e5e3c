"""How fast this machine runs Holdfast, against plain PyTorch and other frameworks."""
