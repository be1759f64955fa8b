-- A table changes while another transaction has rows open elsewhere, which then writes to the changed table.
-- replicate t
-- replicate other
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text);
CREATE TABLE other (id int PRIMARY KEY);
INSERT INTO t VALUES (1, 'one');
-- workload
-- session b
BEGIN;
INSERT INTO other VALUES (1);
-- session a
INSERT INTO t VALUES (2, 'before');

ALTER TABLE t ADD COLUMN n int DEFAULT 5;
INSERT INTO t VALUES (3, 'behind', 3);
-- session b
INSERT INTO t VALUES (4, 'of the other session', 4);
INSERT INTO other VALUES (2);
COMMIT;
-- expected t: live
--   id | v                    | n
--   1  | one                  | 5
--   2  | before               | 5
--   3  | behind               | 3
--   4  | of the other session | 4
-- history t:
--   column n was added
-- expected other: live
--   id
--   1
--   2
-- history other: none
