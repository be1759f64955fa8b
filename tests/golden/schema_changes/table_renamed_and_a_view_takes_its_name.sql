-- The table is renamed and a view has its name.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'one');
-- workload
BEGIN;
ALTER TABLE t RENAME TO t_base;
CREATE VIEW t AS SELECT * FROM t_base;
COMMIT;
-- wait
INSERT INTO t_base VALUES (2, 'two');
-- expected t: live
--   id | v
--   1  | one
--   2  | two
-- history t:
--   renamed to table_renamed_and_a_view_takes_its_name.t_base
