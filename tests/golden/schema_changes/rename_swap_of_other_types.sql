-- Two columns of different types swap their names.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, a int, b text);
INSERT INTO t VALUES (1, 10, 'ten'), (2, 20, 'twenty');
-- workload
BEGIN;
ALTER TABLE t RENAME a TO x;
ALTER TABLE t RENAME b TO a;
ALTER TABLE t RENAME x TO b;
INSERT INTO t (id, a, b) VALUES (3, 'thirty', 30);
COMMIT;
-- expected t: live
--   id | b  | a
--   1  | 10 | ten
--   2  | 20 | twenty
--   3  | 30 | thirty
-- history t:
--   column a is named b now
--   column b is named a now
