-- A column with a default is added, the default goes, and the table is written anew before anybody looked: only the rows tell.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'one'), (2, 'two');
CREATE INDEX t_v ON t (v);
-- workload
ALTER TABLE t ADD COLUMN n int DEFAULT 5;
ALTER TABLE t ALTER n DROP DEFAULT;
CLUSTER t USING t_v;
-- expected t: live
--   id | v   | n
--   1  | one | 5
--   2  | two | 5
-- history t:
--   reloading: table_structure_changed
