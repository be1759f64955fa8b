-- replicate steady
-- setup
CREATE TABLE steady (id int PRIMARY KEY, v text);
INSERT INTO steady SELECT g, 'copied' FROM generate_series(1, 20) g;
-- workload
BEGIN;
ALTER TABLE steady ADD COLUMN n int DEFAULT 5;
INSERT INTO steady VALUES (100, 'undone', 1);
ROLLBACK;

INSERT INTO steady VALUES (101, 'after rollback');
-- wait
BEGIN;
INSERT INTO steady VALUES (102, 'kept');
SAVEPOINT s;
ALTER TABLE steady DROP COLUMN v;
INSERT INTO steady VALUES (103);
ROLLBACK TO s;
UPDATE steady SET v = 'kept too' WHERE id = 102;
COMMIT;

UPDATE steady SET v = 'last' WHERE id = 1;
