-- A column that may not be NULL is added; its default fills the rows from before.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'one'), (2, 'two');
-- workload
ALTER TABLE t ADD COLUMN price numeric(8, 2) NOT NULL DEFAULT 1.50;
-- wait
INSERT INTO t VALUES (3, 'three', 3);
-- expected t: live
--   id | v     | price
--   1  | one   | 1.50
--   2  | two   | 1.50
--   3  | three | 3.00
-- history t:
--   column price was added
