-- Two tables change in one transaction, and rows of both come in turn.
-- replicate a
-- replicate b
-- setup
CREATE TABLE a (id int PRIMARY KEY, v text);
CREATE TABLE b (id int PRIMARY KEY, v text);
INSERT INTO a VALUES (1, 'one');
INSERT INTO b VALUES (1, 'one');
-- workload
BEGIN;
INSERT INTO a VALUES (2, 'before');
INSERT INTO b VALUES (2, 'before');
ALTER TABLE a ADD COLUMN n int DEFAULT 5;
INSERT INTO b VALUES (3, 'between');
ALTER TABLE b DROP COLUMN v;
INSERT INTO a VALUES (3, 'behind', 3);
INSERT INTO b VALUES (4);
COMMIT;
-- expected a: live
--   id | v      | n
--   1  | one    | 5
--   2  | before | 5
--   3  | behind | 3
-- history a:
--   column n was added
-- expected b: live
--   id
--   1
--   2
--   3
--   4
-- history b:
--   column v was dropped
