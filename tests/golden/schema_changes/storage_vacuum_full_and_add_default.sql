-- The table is written anew, and then a column is added whose default fills old rows.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'one'), (2, 'two');
-- workload
VACUUM FULL t;
-- wait
ALTER TABLE t ADD COLUMN n int DEFAULT 5;
INSERT INTO t VALUES (3, 'three', 3);
-- expected t: live
--   id | v     | n
--   1  | one   | 5
--   2  | two   | 5
--   3  | three | 3
-- history t:
--   column n was added
