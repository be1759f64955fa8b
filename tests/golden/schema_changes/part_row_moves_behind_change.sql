-- A row moves to another partition in the transaction that adds a column.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text) PARTITION BY RANGE (id);
CREATE TABLE t_1 PARTITION OF t FOR VALUES FROM (0) TO (10);
CREATE TABLE t_2 PARTITION OF t FOR VALUES FROM (10) TO (20);
INSERT INTO t VALUES (1, 'one'), (2, 'two'), (11, 'eleven');
-- workload
BEGIN;
UPDATE t SET id = 13 WHERE id = 1;
ALTER TABLE t ADD COLUMN n int DEFAULT 5;
UPDATE t SET id = 12, n = 12 WHERE id = 2;
UPDATE t SET id = 1 WHERE id = 13;
COMMIT;
-- expected t: live
--   id | v      | n
--   1  | one    | 5
--   11 | eleven | 5
--   12 | two    | 12
-- history t:
--   column n was added
