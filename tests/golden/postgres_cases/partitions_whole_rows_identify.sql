-- A partitioned table without a key, whose whole rows identify: rows with equal values move between partitions.
-- replicate users
-- setup
CREATE TABLE users (id bigint, n int, v int) PARTITION BY RANGE (n);
CREATE TABLE users_0 PARTITION OF users FOR VALUES FROM (0) TO (10);
CREATE TABLE users_1 (v int, n int, id bigint);
ALTER TABLE users ATTACH PARTITION users_1 FOR VALUES FROM (10) TO (20);
ALTER TABLE users REPLICA IDENTITY FULL;
ALTER TABLE users_0 REPLICA IDENTITY FULL;
ALTER TABLE users_1 REPLICA IDENTITY FULL;
INSERT INTO users SELECT g % 50, g % 20, g FROM generate_series(0, 100) g;
INSERT INTO users SELECT 4, 14, 4 FROM generate_series(1, 3);
-- workload
UPDATE users SET n = 0 WHERE id = 4;
-- session compare
rows moved down
-- session a
DELETE FROM users WHERE id = 1 AND n = 1;
DELETE FROM users WHERE ctid IN (SELECT ctid FROM users_0 WHERE id = 4 AND v = 4 LIMIT 2) AND tableoid = 'users_0'::regclass;
UPDATE users SET n = 19, v = NULL WHERE id = 12;
