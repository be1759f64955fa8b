-- Three columns pass their names on in a ring.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, a int, b int, c int);
INSERT INTO t VALUES (1, 1, 2, 3);
-- workload
BEGIN;
ALTER TABLE t RENAME a TO x;
ALTER TABLE t RENAME c TO a;
ALTER TABLE t RENAME b TO c;
ALTER TABLE t RENAME x TO b;
COMMIT;
-- expected t: live
--   id | b | c | a
--   1  | 1 | 2 | 3
-- history t:
--   column a is named b now
--   column b is named c now
--   column c is named a now
