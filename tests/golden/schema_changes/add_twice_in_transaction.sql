-- Two columns come one after the other in a transaction, with rows before, between and behind.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'one'), (2, 'two');
-- workload
BEGIN;
INSERT INTO t VALUES (3, 'before');
ALTER TABLE t ADD COLUMN a int DEFAULT 7;
INSERT INTO t VALUES (4, 'between', 8);
UPDATE t SET a = 0 WHERE id = 1;
ALTER TABLE t ADD COLUMN b text DEFAULT 'b';
INSERT INTO t VALUES (5, 'behind', 9, 'c');
UPDATE t SET b = NULL WHERE id = 3;
COMMIT;
-- expected t: live
--   id | v       | a | b
--   1  | one     | 0 | b
--   2  | two     | 7 | b
--   3  | before  | 7 | NULL
--   4  | between | 8 | b
--   5  | behind  | 9 | c
-- history t:
--   column a was added
--   column b was added
