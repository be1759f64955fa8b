-- A column comes through the root with a constant as default, and rows with it.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text) PARTITION BY RANGE (id);
CREATE TABLE t_1 PARTITION OF t FOR VALUES FROM (0) TO (10);
CREATE TABLE t_2 PARTITION OF t FOR VALUES FROM (10) TO (20);
INSERT INTO t VALUES (1, 'one'), (11, 'eleven');
-- workload
BEGIN;
INSERT INTO t VALUES (2, 'before');
ALTER TABLE t ADD COLUMN n int DEFAULT 5, DROP COLUMN v;
INSERT INTO t VALUES (12, 7);
UPDATE t SET n = NULL WHERE id = 11;
COMMIT;
-- expected t: live
--   id | n
--   1  | 5
--   2  | 5
--   11 | NULL
--   12 | 7
-- history t:
--   column v was dropped
--   column n was added
