-- The default is not the column's but its domain's.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'one'), (2, 'two');
CREATE DOMAIN grade AS text DEFAULT 'fair';
-- workload
ALTER TABLE t ADD COLUMN g grade;
-- wait
INSERT INTO t (id, v) VALUES (3, 'three');
INSERT INTO t VALUES (4, 'four', 'good');
-- expected t: live
--   id | v     | g
--   1  | one   | fair
--   2  | two   | fair
--   3  | three | fair
--   4  | four  | good
-- history t:
--   column g was added
