-- A column with a default is added, and the table is written anew before anybody looked: what old rows have is noted nowhere.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'one'), (2, 'two');
CREATE INDEX t_v ON t (v);
-- workload
ALTER TABLE t ADD COLUMN n int DEFAULT 5;
CLUSTER t USING t_v;
-- expected t: live
--   id | v   | n
--   1  | one | 5
--   2  | two | 5
-- history t:
--   reloading: table_structure_changed
