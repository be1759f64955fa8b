-- replicate bag
-- setup
CREATE TABLE bag (a int, b text, big text, d double precision);
ALTER TABLE bag REPLICA IDENTITY FULL;
ALTER TABLE bag ALTER big SET STORAGE EXTERNAL;
INSERT INTO bag SELECT g % 5, 'x', NULL, g % 2 FROM generate_series(1, 50) g;
INSERT INTO bag VALUES (NULL, NULL, NULL, NULL), (NULL, NULL, NULL, NULL), (1, 'big', repeat('y', 9000), 'NaN');
-- workload
DELETE FROM bag WHERE ctid IN (SELECT ctid FROM bag WHERE a = 3 LIMIT 4);

INSERT INTO bag SELECT 3, 'x', NULL, 1 FROM generate_series(1, 3);
-- wait
UPDATE bag SET b = 'changed' WHERE a = 2;

UPDATE bag SET a = 9 WHERE b = 'big';
UPDATE bag SET b = 'bigger' WHERE a = 9;

DELETE FROM bag WHERE ctid IN (SELECT ctid FROM bag WHERE a IS NULL LIMIT 1);

INSERT INTO bag VALUES (7, 'twin', NULL, '-0'), (7, 'twin', NULL, '0'), (7, 'twin', NULL, '-0');
DELETE FROM bag WHERE ctid IN (SELECT ctid FROM bag WHERE a = 7 AND d::text = '-0' LIMIT 1);
-- wait
BEGIN;
INSERT INTO bag VALUES (8, 'gone at once', NULL, 1);
DELETE FROM bag WHERE a = 8;
UPDATE bag SET b = b WHERE a = 2;
COMMIT;
