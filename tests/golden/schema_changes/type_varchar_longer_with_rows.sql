-- A text's limit grows between the rows of one transaction.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v varchar(5));
INSERT INTO t VALUES (1, 'one'), (2, 'two');
-- workload
BEGIN;
INSERT INTO t VALUES (3, 'short');
ALTER TABLE t ALTER v TYPE varchar(20);
INSERT INTO t VALUES (4, 'longer than five');
UPDATE t SET v = 'much longer' WHERE id = 1;
COMMIT;
-- expected t: live
--   id | v
--   1  | much longer
--   2  | two
--   3  | short
--   4  | longer than five
-- history t:
--   column v changed its type
