-- replicate moved
-- setup
CREATE TABLE moved (id int PRIMARY KEY, n int, big text, other text);
ALTER TABLE moved ALTER big SET STORAGE EXTERNAL;
ALTER TABLE moved ALTER other SET STORAGE EXTERNAL;
INSERT INTO moved SELECT g, g, repeat(md5(g::text), 500), repeat('o', 5000) FROM generate_series(1, 10) g;
-- workload
UPDATE moved SET id = 102 WHERE id = 2;
-- wait
UPDATE moved SET id = 103, n = 33 WHERE id = 3;
UPDATE moved SET n = 34 WHERE id = 103;

UPDATE moved SET other = repeat('p', 6000) WHERE id = 4;
UPDATE moved SET id = 104 WHERE id = 4;

UPDATE moved SET id = 105 WHERE id = 5;
INSERT INTO moved VALUES (5, 0, 'in its place', NULL);
UPDATE moved SET n = 1 WHERE id = 5;

UPDATE moved SET id = 106 WHERE id = 6;
UPDATE moved SET id = 206 WHERE id = 106;
UPDATE moved SET big = NULL WHERE id = 206;
