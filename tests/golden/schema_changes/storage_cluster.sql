-- The table is sorted by an index, with rows before and behind.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text);
CREATE INDEX t_v ON t (v);
INSERT INTO t VALUES (1, 'one'), (2, 'two');
-- workload
BEGIN;
INSERT INTO t VALUES (3, 'before');
CLUSTER t USING t_v;
INSERT INTO t VALUES (4, 'behind');
UPDATE t SET v = 'changed' WHERE id = 1;
COMMIT;
-- expected t: live
--   id | v
--   1  | changed
--   2  | two
--   3  | before
--   4  | behind
-- history t: none
