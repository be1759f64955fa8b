-- The table is emptied before a column comes whose values the log does not carry: there were no rows to get one.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'one');
-- workload
BEGIN;
TRUNCATE t;
ALTER TABLE t ADD COLUMN n serial;
INSERT INTO t (id, v) VALUES (2, 'two');
COMMIT;
-- expected t: live
--   id | v   | n
--   2  | two | 1
-- history t:
--   reloading: table_structure_changed
