"""What the laboratory trains on: datasets and the streams of tasks made of them."""
