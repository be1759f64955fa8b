-- One statement drops a column, adds one and widens another.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, a int, b varchar(3), c text);
INSERT INTO t VALUES (1, 1, 'one', 'x'), (2, 2, 'two', 'y');
-- workload
ALTER TABLE t DROP COLUMN a, ALTER b TYPE varchar(9), ADD COLUMN d int DEFAULT 4;
-- wait
INSERT INTO t VALUES (3, 'three', 'z', 5);
-- expected t: live
--   id | b     | c | d
--   1  | one   | x | 4
--   2  | two   | y | 4
--   3  | three | z | 5
-- history t:
--   column a was dropped
--   column b changed its type
--   column d was added
