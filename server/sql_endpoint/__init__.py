"""What the engines' SQL endpoints ask the server: logins, and statements on fresh rows."""
