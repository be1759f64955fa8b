-- A column with a default is added, the default goes, the table is written anew, and then a row comes.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'one'), (2, 'two');
CREATE INDEX t_v ON t (v);
-- workload
ALTER TABLE t ADD COLUMN n int DEFAULT 5;
ALTER TABLE t ALTER n DROP DEFAULT;
CLUSTER t USING t_v;
INSERT INTO t VALUES (3, 'three', 3);
-- expected t: live
--   id | v     | n
--   1  | one   | 5
--   2  | two   | 5
--   3  | three | 3
-- history t:
--   reloading: table_structure_changed
