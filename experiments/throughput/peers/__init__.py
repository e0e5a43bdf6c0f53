"""What gopt is compared with: the same costs by other means, the same search by other packages."""
