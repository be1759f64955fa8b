-- replicate whole
-- setup
CREATE TABLE whole (id int PRIMARY KEY, n int, big text, label text);
ALTER TABLE whole REPLICA IDENTITY FULL;
ALTER TABLE whole ALTER big SET STORAGE EXTERNAL;
INSERT INTO whole SELECT g, g, repeat(md5(g::text), 200), NULL FROM generate_series(1, 20) g;
-- workload
UPDATE whole SET n = -n;
-- wait
UPDATE whole SET id = id + 100 WHERE id <= 5;

UPDATE whole SET label = 'x' WHERE id = 101;
UPDATE whole SET id = 1 WHERE id = 101;

DELETE FROM whole WHERE id = 10;
INSERT INTO whole VALUES (10, 1, 'again', 'y');
UPDATE whole SET big = repeat('z', 5000) WHERE id = 10;
UPDATE whole SET n = 2 WHERE id = 10;
