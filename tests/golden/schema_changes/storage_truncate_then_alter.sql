-- The table is emptied, gets a column and new rows.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'one'), (2, 'two');
-- workload
TRUNCATE t;
ALTER TABLE t ADD COLUMN n int DEFAULT 5;
INSERT INTO t (id, v) VALUES (1, 'new');
-- expected t: live
--   id | v   | n
--   1  | new | 5
-- history t:
--   column n was added
