-- replicate wide
-- setup
CREATE TABLE wide (id int PRIMARY KEY, n int, body text, raw bytea);
ALTER TABLE wide ALTER body SET STORAGE EXTERNAL;
INSERT INTO wide VALUES (1, 1, repeat('0123456789abcdef', 1310720), NULL);
INSERT INTO wide VALUES (2, 1, 'small', decode(repeat('00ff10', 3500000), 'hex'));
-- workload
INSERT INTO wide VALUES (3, 1, repeat('fedcba9876543210', 1310720), decode(repeat('ab', 5000000), 'hex'));

UPDATE wide SET n = n + 1;
-- wait
UPDATE wide SET body = body || '!' WHERE id = 1;

UPDATE wide SET id = 33 WHERE id = 3;
DELETE FROM wide WHERE id = 2;
