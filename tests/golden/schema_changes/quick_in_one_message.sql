-- Changes and rows in turn, all in one transaction.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v varchar(5));
INSERT INTO t VALUES (1, 'one'), (2, 'two');
-- workload
INSERT INTO t VALUES (3, 'three');
ALTER TABLE t ADD COLUMN a int DEFAULT 1;
UPDATE t SET a = 2 WHERE id = 1;
ALTER TABLE t ALTER v TYPE text;
INSERT INTO t VALUES (4, 'longer than five', 4);
ALTER TABLE t ADD COLUMN b text DEFAULT 'b';
DELETE FROM t WHERE id = 2;
INSERT INTO t VALUES (2, 'again', 2, 'c');
ALTER TABLE t ADD COLUMN c int;
UPDATE t SET c = a;
-- expected t: live
--   id | v                | a | b | c
--   1  | one              | 2 | b | 2
--   2  | again            | 2 | c | 2
--   3  | three            | 1 | b | 1
--   4  | longer than five | 4 | b | 4
-- history t:
--   column a was added
--   column v changed its type
--   column b was added
--   column c was added
