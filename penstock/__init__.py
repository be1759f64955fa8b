"""What programs import of Penstock: `penstock.client`."""
