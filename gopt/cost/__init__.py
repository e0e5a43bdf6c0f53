"""Cost models: pure, batched, exact int32."""
