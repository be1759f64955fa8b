-- replicate ring
-- setup
CREATE TABLE ring (id int PRIMARY KEY, label text, big text);
ALTER TABLE ring ALTER big SET STORAGE EXTERNAL;
INSERT INTO ring SELECT g, 'row ' || g, repeat(chr(64 + g), 9000) FROM generate_series(1, 20) g;
-- workload
BEGIN;
UPDATE ring SET id = -1 WHERE id = 1;
UPDATE ring SET id = 1 WHERE id = 2;
UPDATE ring SET id = 2 WHERE id = -1;
COMMIT;

BEGIN;
UPDATE ring SET id = -3 WHERE id = 3;
UPDATE ring SET id = 3 WHERE id = 4;
UPDATE ring SET id = 4 WHERE id = 5;
UPDATE ring SET id = 5, label = 'round' WHERE id = -3;
COMMIT;
-- wait
BEGIN;
UPDATE ring SET id = -6 WHERE id = 6;
UPDATE ring SET id = 6 WHERE id = 7;
UPDATE ring SET id = 7 WHERE id = -6;
UPDATE ring SET id = -6 WHERE id = 6;
UPDATE ring SET id = 6 WHERE id = 7;
UPDATE ring SET id = 7 WHERE id = -6;
COMMIT;

UPDATE ring SET id = id + 100;

UPDATE ring SET id = id - 99;

DELETE FROM ring WHERE id = 12;
UPDATE ring SET id = 12 WHERE id = 13;
INSERT INTO ring VALUES (13, 'fills the gap', 'x');
