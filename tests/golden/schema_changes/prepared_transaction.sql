-- A change is made in a transaction that is prepared first and committed later.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'one');
-- workload
BEGIN;
INSERT INTO t VALUES (2, 'before');
ALTER TABLE t ADD COLUMN n int DEFAULT 5;
INSERT INTO t VALUES (3, 'behind', 3);
PREPARE TRANSACTION 'a change';

COMMIT PREPARED 'a change';

INSERT INTO t VALUES (4, 'four', 4);
-- expected t: live
--   id | v      | n
--   1  | one    | 5
--   2  | before | 5
--   3  | behind | 3
--   4  | four   | 4
-- history t:
--   column n was added
