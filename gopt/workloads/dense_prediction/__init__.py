"""Models for segmentation, pose estimation and detection."""
