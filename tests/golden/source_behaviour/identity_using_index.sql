-- replicate indexed
-- replicate keyless
-- setup
CREATE TABLE indexed (id int PRIMARY KEY, code text NOT NULL, region int NOT NULL, v text);
CREATE UNIQUE INDEX indexed_code ON indexed (region, code);
ALTER TABLE indexed REPLICA IDENTITY USING INDEX indexed_code;
CREATE TABLE keyless (v int, code text NOT NULL);
CREATE UNIQUE INDEX keyless_code ON keyless (code);
ALTER TABLE keyless REPLICA IDENTITY USING INDEX keyless_code;
INSERT INTO indexed SELECT g, 'c' || g, g % 3, 'v' FROM generate_series(1, 60) g;
INSERT INTO keyless SELECT g, 'c' || g FROM generate_series(1, 10) g;
-- workload
UPDATE indexed SET v = 'changed' WHERE region = 1;

UPDATE indexed SET id = id + 1000 WHERE region = 2;
-- wait
UPDATE indexed SET code = 'new-' || code WHERE id < 10;
DELETE FROM indexed WHERE id BETWEEN 20 AND 30;

UPDATE keyless SET v = v * 2;
UPDATE keyless SET code = 'z' WHERE code = 'c5';
DELETE FROM keyless WHERE code = 'c6';
