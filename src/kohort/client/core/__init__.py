"""The sans-IO core that all clients share: how parts ask and wait, and what is known of the cluster."""
