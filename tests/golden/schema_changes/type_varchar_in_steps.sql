-- A text's limit grows in steps until there is none, in one transaction with rows at each step.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v varchar(5));
INSERT INTO t VALUES (1, 'one');
-- workload
BEGIN;
ALTER TABLE t ALTER v TYPE varchar(10);
INSERT INTO t VALUES (2, 'up to ten');
ALTER TABLE t ALTER v TYPE varchar(20);
INSERT INTO t VALUES (3, 'more than ten');
ALTER TABLE t ALTER v TYPE text;
INSERT INTO t VALUES (4, repeat('x', 30));
COMMIT;
-- expected t: live
--   id | v
--   1  | one
--   2  | up to ten
--   3  | more than ten
--   4  | xxxxxxxxxxxxxxxxxxxxxxxxxxxxxx
-- history t:
--   column v changed its type
