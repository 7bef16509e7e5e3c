"""The augmentations: one way to change training images at random per file, such as ``crop(4, padding=reflect)``.

To add an augmentation, add a file: it is discovered automatically. It may import ``holdfast.data.augmentation`` (the
contract) and ``holdfast.core``.
"""
